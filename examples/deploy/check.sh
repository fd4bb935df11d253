# ACCESS_TOKEN is a token of your authorization server for the resource https://localhost:8443/mcp.
export NODE_EXTRA_CA_CERTS=tls/cert.pem
npx rondo doctor https://localhost:8443/mcp --bearer env:ACCESS_TOKEN --tool resolve_bug id=7 --other id=8
