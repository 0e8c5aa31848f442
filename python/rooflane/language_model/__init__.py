"""A language model proposes configurations: client (endpoint.py, client.py), request (prompt.py,
excerpt.py), answer (answer.py), and the strategy made of them (asking.py, strategy.py)."""
