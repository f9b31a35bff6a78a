"""Speed, memory and numbers of parameters of models."""
