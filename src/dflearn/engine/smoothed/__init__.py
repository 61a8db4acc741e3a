"""The smoothed program: interior points, Newton's method, faces."""
