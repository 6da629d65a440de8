# A clone of this repository, as far as the guide uses it.
mkdir reconciler && cp -r "$PROJECT/deploy" "$PROJECT/.github" reconciler/
