"""A language model proposes configurations: client (endpoint.py, client.py), request (prompt.py,
excerpt.py), answer (answer.py), and who asks (asking.py)."""
