"""The tuner of Rooflane: searches, archive, reports. Run by `rooflane tune` and `rooflane archive`
through scripts/tune.py, which makes the environment that it needs."""
