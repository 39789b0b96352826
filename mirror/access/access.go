// Package access is how a program of ours gets into a Kafka that does not let everybody in:
// TLS, certificates, and a name with a password.
package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/IBM/sarama"
)

// Config is the part of a `kafka` section that says so; the zero value is plain text and no name.
type Config struct {
	// TLS encrypts the connections.
	TLS TLS `yaml:"tls"`
	// SASL names the account.
	SASL SASL `yaml:"sasl"`
}

// TLS says how a broker proves who it is, and the program too. The files are PEM.
type TLS struct {
	// Enabled: speak TLS, 1.2 or later. A broker's certificate must be for the name by which
	// it is dialled. Default false.
	Enabled bool `yaml:"enabled"`
	// CAFile holds the authorities that may have signed the brokers' certificates. It is read
	// at the start. Default: those of the system.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the program's own certificate, for brokers that ask for one. They
	// are read again for each connection. Default: none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// SASL is an account.
type SASL struct {
	// Mechanism is plain, scram-sha-256 or scram-sha-512. With plain the broker sees the
	// password, and without TLS everybody on the way. Default: no account.
	Mechanism string `yaml:"mechanism"`
	User      string `yaml:"user"`
	Password  string `yaml:"password"`
}

// mechanisms are the values of SASL.Mechanism.
var mechanisms = map[string]sarama.SASLMechanism{
	"plain":         sarama.SASLTypePlaintext,
	"scram-sha-256": sarama.SASLTypeSCRAMSHA256,
	"scram-sha-512": sarama.SASLTypeSCRAMSHA512,
}

// A Setup sets what a Config says in a client's configuration.
type Setup func(*sarama.Config)

// Check reads the files, and returns all that is wrong, each with its key in the configuration.
func (c Config) Check() []error {
	_, problems := c.load()
	return problems
}

// Load is Check, and what to do with a client's configuration. The error joins all that is wrong.
func (c Config) Load() (Setup, error) {
	set, problems := c.load()
	return set, errors.Join(problems...)
}

func (c Config) load() (Setup, []error) {
	t, problems := c.TLS.load()
	if problems = append(problems, c.SASL.check()...); len(problems) > 0 {
		return nil, problems
	}
	return func(s *sarama.Config) {
		s.Net.TLS.Enable, s.Net.TLS.Config = t != nil, t
		if c.SASL.Mechanism == "" {
			return
		}
		s.Net.SASL.Enable = true
		s.Net.SASL.Mechanism = mechanisms[c.SASL.Mechanism]
		s.Net.SASL.User, s.Net.SASL.Password = c.SASL.User, c.SASL.Password
		s.Net.SASL.SCRAMClientGeneratorFunc = scramOf(c.SASL.Mechanism)
	}, nil
}

// load is nil without TLS.
func (t TLS) load() (c *tls.Config, problems []error) {
	if !t.Enabled {
		if t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" {
			problems = append(problems, errors.New("kafka.tls.enabled: false, and files are given: set it to true, or take them out"))
		}
		return nil, problems
	}
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pool, err := authorities(t.CAFile)
		if err != nil {
			problems = append(problems, err)
		}
		c.RootCAs = pool
	}
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		problems = append(problems, errors.New("kafka.tls.cert_file: one of cert_file and key_file is given: name both or none"))
	case t.CertFile != "":
		if _, err := t.certificate(nil); err != nil {
			problems = append(problems, err)
		}
		c.GetClientCertificate = t.certificate
	}
	return c, problems
}

func authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("kafka.tls.ca_file: %s: holds no certificate in PEM form", file)
	}
	return pool, nil
}

// certificate reads the program's own.
func (t TLS) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.cert_file: %w", err)
	}
	return &pair, nil
}

func (s SASL) check() (problems []error) {
	if s.Mechanism == "" {
		if s.User != "" || s.Password != "" {
			problems = append(problems, errors.New("kafka.sasl.mechanism: empty, and a user or password is given: name plain, scram-sha-256 or scram-sha-512"))
		}
		return problems
	}
	if _, known := mechanisms[s.Mechanism]; !known {
		problems = append(problems, fmt.Errorf("kafka.sasl.mechanism: %q; plain, scram-sha-256 or scram-sha-512", s.Mechanism))
	}
	if s.User == "" {
		problems = append(problems, errors.New("kafka.sasl.user: empty; name the account in Kafka"))
	}
	if s.Password == "" {
		problems = append(problems, errors.New("kafka.sasl.password: empty; give it, such as ${file:/etc/notify/kafka.password}"))
	}
	return problems
}
