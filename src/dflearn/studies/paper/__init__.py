"""The paper that this library grew from: its hyperparameters, its published figures, and its tables made anew."""
