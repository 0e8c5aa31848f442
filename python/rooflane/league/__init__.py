"""The league: strategies compared by replay of completely measured spaces. docs/tuning.md says how
it judges."""
