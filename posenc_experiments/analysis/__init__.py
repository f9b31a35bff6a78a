"""What experiments learned and where they differ: analyses of their texts and models, and a page to read them on."""
