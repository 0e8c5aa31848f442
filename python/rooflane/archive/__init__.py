"""What was ever tuned: machines, spaces, runs and every evaluation with its samples.

store.py holds `Archive`, schema.py its tables; t4.py, kernel_tuner.py and documents.py the formats
that go in and out, command.py the verb `rooflane archive`.
"""
