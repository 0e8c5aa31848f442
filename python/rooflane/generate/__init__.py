"""Text in and out of a language model: vocabulary, chat template, streaming. The model itself runs
in the program (`rooflane generate --ids`)."""
