"""Models of the library computed by others, from the tensors that `rooflane model --save` wrote."""
