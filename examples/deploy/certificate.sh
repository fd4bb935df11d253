# A certificate for trying the recipe on this machine. Use one of a certificate authority for others.
mkdir -p tls
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
  -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout tls/key.pem -out tls/cert.pem
