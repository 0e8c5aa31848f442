"""What llm_compare.py holds `rooflane generate` against: llama.cpp and a forward pass in double
precision. Each file says in which environment it runs."""
