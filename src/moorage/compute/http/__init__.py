"""The compute API: Nova's, microversions 2.1 to 2.96."""
