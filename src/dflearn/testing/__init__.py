"""Contract checks for people who write their own solver, layer, loss or problem: call one from a test of your own."""
