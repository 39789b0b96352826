package stage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	// File is its own certificate, PEM.
	File string
	// Cert is the same.
	Cert *x509.Certificate

	t      testing.TB
	key    *ecdsa.PrivateKey
	signed int64
}

// NewAuthority is one that nobody knows.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t}
	var der []byte
	a.key, der = a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	var err error
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = a.write("ca.pem", &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Signed is a certificate and its key, PEM files.
type Signed struct{ Cert, Key string }

// Sign makes a certificate for an address.
func (a *Authority) Sign(ends time.Time, address string) Signed {
	a.t.Helper()
	private, der := a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: "signed"}, NotAfter: ends, IPAddresses: []net.IP{net.ParseIP(address)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return Signed{a.write("cert.pem", &pem.Block{Type: "CERTIFICATE", Bytes: der}), a.write("key.pem", &pem.Block{Type: "PRIVATE KEY", Bytes: secret})}
}

// make signs a certificate, its own as long as it has none.
func (a *Authority) make(c *x509.Certificate) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.signed++
	c.SerialNumber, c.NotBefore = big.NewInt(a.signed), time.Now().Add(-time.Hour)
	parent, signer := a.Cert, a.key
	if parent == nil {
		parent, signer = c, private
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &private.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return private, der
}

func (a *Authority) write(name string, block *pem.Block) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), name)
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}
