package dsn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Parameters of an address that the driver does not know. Each is the path of a PEM file, and
// any of them means TLS.
const (
	paramCA   = "tls-ca"   // authorities that may have signed the server's certificate; else the system's
	paramCert = "tls-cert" // the client's own certificate, read again for each connection
	paramKey  = "tls-key"
)

// ErrTLS is wrapped, beside ErrInvalid, when a file for TLS cannot be used; the message names it.
var ErrTLS = errors.New("TLS")

// tlsFiles are those that an address names.
type tlsFiles struct{ ca, cert, key string }

var tlsParam = regexp.MustCompile(`[?&](tls-ca|tls-cert|tls-key)=([^&]*)`)

// cutTLS takes our own parameters out of an address. They stand behind the last parenthesis: the
// driver would take the slash of a path for the one before the schema.
func cutTLS(address string) (rest string, f tlsFiles, err error) {
	at := strings.LastIndexAny(address, ")@")
	head, tail := address[:at+1], address[at+1:]
	for _, m := range tlsParam.FindAllStringSubmatch(tail, -1) {
		path, unescaped := url.QueryUnescape(m[2])
		if unescaped != nil || path == "" {
			return "", f, fmt.Errorf("%w: %s: not the path of a file", ErrTLS, m[1])
		}
		switch m[1] {
		case paramCA:
			f.ca = path
		case paramCert:
			f.cert = path
		case paramKey:
			f.key = path
		}
	}
	tail = tlsParam.ReplaceAllString(tail, "&")
	if schema, params, found := strings.Cut(tail, "?"); found {
		tail = schema + "?" + strings.Trim(params, "&")
	} else if schema, params, found := strings.Cut(tail, "&"); found {
		tail = schema + "?" + strings.Trim(params, "&")
	}
	return head + strings.TrimSuffix(tail, "?"), f, nil
}

// apply makes a configuration use the files.
func (f tlsFiles) apply(cfg *mysql.Config) error {
	if f == (tlsFiles{}) {
		return nil
	}
	switch cfg.TLSConfig {
	case "", "true":
	default:
		return fmt.Errorf("%w: tls=%s beside %s, %s or %s: leave it out", ErrTLS, cfg.TLSConfig, paramCA, paramCert, paramKey)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		c = cfg.TLS
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrTLS, paramCA, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%w: %s: %s holds no certificate in PEM form", ErrTLS, paramCA, f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return fmt.Errorf("%w: one of %s and %s is given: name both or none", ErrTLS, paramCert, paramKey)
	}
	if f.cert != "" {
		if _, err := f.certificate(nil); err != nil {
			return err
		}
		c.GetClientCertificate = f.certificate
	}
	if host, _, err := net.SplitHostPort(cfg.Addr); err == nil { // of several servers each has its own
		c.ServerName = host
	}
	cfg.TLS = c
	return nil
}

func (f tlsFiles) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("%w: %s, %s: %w", ErrTLS, paramCert, paramKey, err)
	}
	return &pair, nil
}
