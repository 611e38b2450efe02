"""What is made of a model's outputs: pictures, volumes, masks, names of classes."""
