# A copy of this repository, as far as the guide uses it.
mkdir reconciler && cp -r "$PROJECT/deploy" reconciler/
