"""Tables, figures and pages for people: they read results and compute none."""
