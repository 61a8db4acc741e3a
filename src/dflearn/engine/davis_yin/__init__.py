"""Davis-Yin splitting."""
