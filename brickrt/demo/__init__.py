"""What `brickrt demo` does: a noisy photograph goes through a small denoiser, on several engines."""
