"""What every other package may use: errors, ids, clock, configuration, logs. Imports nothing of ours."""
