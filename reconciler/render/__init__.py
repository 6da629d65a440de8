"""The steps that make one package: update, context, pipeline, injection."""
