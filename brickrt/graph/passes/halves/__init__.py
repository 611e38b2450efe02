"""Float16 models on processors that compute in float32."""
