"""What was ever tuned: every run and every evaluation with its samples.

store.py holds `Archive`, database.py its tables, records.py the data as JSON; t4.py and
kernel_tuner.py are formats of others, command.py is the verb `rooflane archive`.
"""
