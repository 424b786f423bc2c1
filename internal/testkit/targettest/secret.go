package targettest

import "github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"

// Certificate is that of a CA whose key is not kept.
const Certificate = `-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUFmAJYjD3QNFA7PhMI/uu5UOayiYwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjkwODEzMDNaGA8yMTI2MTEwNTA4MTMw
M1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABHNK
50d95EUdSMSkltyYmxQkmxG9LVDz0auPHGidHwKYTynmL5geoexzscvs4vEob3fi
6o1Nn9h1IkE+Bd7PYLijUzBRMB0GA1UdDgQWBBQKUi3OSECzbwd13ASMd36/T5Gc
vTAfBgNVHSMEGDAWgBQKUi3OSECzbwd13ASMd36/T5GcvTAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQCjtiWZprUybO4FvmrV77zkGGpuhJObXH1x
VeKuMplD9AIgHmbiDSoScZ/b2JxP3pIYm9RXVbvn0e5N6j97G+e3Lzc=
-----END CERTIFICATE-----
`

// SecretOf returns the data of a Secret that names the API server of a target cluster.
func SecretOf(server, token string) map[string][]byte {
	return map[string][]byte{access.KeyServer: []byte(server), access.KeyCA: []byte(Certificate), access.KeyToken: []byte(token)}
}
