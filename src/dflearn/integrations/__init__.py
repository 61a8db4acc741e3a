"""Other people's engines around ours: Ray for many machines, Lightning for training at scale, MLflow and TensorBoard."""
