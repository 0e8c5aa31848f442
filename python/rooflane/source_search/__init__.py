"""`tune --strategy source`: a language model, or a program (`--proposer`), writes the kernel, and
`rooflane judge` says what it is worth.

  sources     the texts of a run by number: what a configuration stands for
  evaluator   judges one beside the variant that is to be beaten
  request     what is told of the task, the best source and the last attempts
  asking      from an answer to sources
  strategy    the search made of these; flags takes the trials that nobody has a source for
  tuning      the last comparison and what is kept
"""
