# The private key of a GitHub App, as its page lets one download it.
openssl genrsa -traditional -out fleet-app.pem 2048 2>/dev/null
