"""Mistral 7B and Nemo: a Llama without biases, whose sliding window must not be shorter than the context."""

from foredraft_exporter.models.architecture import Architecture

MISTRAL = Architecture(model_type="mistral", class_name="MistralForCausalLM", windowed=True, window=4096)
