"""The workers behind peers.py: serve.py is the protocol, *_peer.py one library each."""
