package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"notifymirror/e2e/stage"
	"notifymirror/mirror/access"
)

const here = "127.0.0.1"

// broker starts a Kafka that asks who comes.
func broker(t *testing.T, opts ...kfake.Opt) string {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

// server is TLS by a certificate and its key.
func server(t *testing.T, s stage.Signed) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

// owning is TLS with a certificate of one's own.
func owning(t access.TLS, own stage.Signed) access.TLS {
	t.CertFile, t.KeyFile = own.Cert, own.Key
	return t
}

// enter asks a broker for its topics.
func enter(addr string, c access.Config) error {
	letIn, err := c.Load()
	if err != nil {
		return err
	}
	s := sarama.NewConfig()
	s.Metadata.Retry.Max = 0
	s.Net.DialTimeout, s.Net.ReadTimeout = 2*time.Second, 2*time.Second
	letIn(s)
	client, err := sarama.NewClient([]string{addr}, s)
	if err != nil {
		return err
	}
	_, err = client.Topics()
	_ = client.Close() // only an answer was wanted
	return err
}

func account(mechanism, password string) access.SASL {
	return access.SASL{Mechanism: mechanism, User: "canald", Password: password}
}

// A Kafka with TLS and accounts lets in who has both right. Who has not gets told what to mend.
func TestWhoHasTheRightThingsIsLetIn(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	ours, other := stage.NewAuthority(t, "ours"), stage.NewAuthority(t, "other")
	good := server(t, ours.Sign(soon, here))
	accounts := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "canald", "right"),
		kfake.Superuser("SCRAM-SHA-256", "canald", "right"), kfake.Superuser("SCRAM-SHA-512", "canald", "right")}
	mutual := server(t, ours.Sign(soon, here))
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	mutual.ClientCAs.AddCert(ours.Cert)

	plain := broker(t)
	secure := broker(t, append(accounts, kfake.TLS(good))...)
	accountsOnly := broker(t, accounts...)
	certified := broker(t, kfake.TLS(mutual))
	expired := broker(t, kfake.TLS(server(t, ours.Sign(time.Now().Add(-time.Minute), here))))
	elsewhere := broker(t, kfake.TLS(server(t, ours.Sign(soon, "10.0.0.1"))))

	encrypted := access.TLS{Enabled: true, CAFile: ours.File}
	known, unknown := encrypted, encrypted
	known = owning(known, ours.Sign(soon, here))
	unknown = owning(unknown, other.Sign(soon, here))
	for name, c := range map[string]struct {
		addr   string
		config access.Config
		mend   string // empty: let in
		denied bool
	}{
		"nothing is asked for":         {plain, access.Config{}, "", false},
		"plain":                        {secure, access.Config{TLS: encrypted, SASL: account("plain", "right")}, "", false},
		"scram 256":                    {secure, access.Config{TLS: encrypted, SASL: account("scram-sha-256", "right")}, "", false},
		"scram 512":                    {secure, access.Config{TLS: encrypted, SASL: account("scram-sha-512", "right")}, "", false},
		"an account without TLS":       {accountsOnly, access.Config{SASL: account("scram-sha-512", "right")}, "", false},
		"a certificate of one's own":   {certified, access.Config{TLS: known}, "", false},
		"another authority":            {secure, access.Config{TLS: access.TLS{Enabled: true, CAFile: other.File}}, "kafka.tls.ca_file", true},
		"the system's authorities":     {secure, access.Config{TLS: access.TLS{Enabled: true}}, "kafka.tls.ca_file", true},
		"a certificate that ended":     {expired, access.Config{TLS: encrypted}, "renew the broker's certificate", true},
		"a certificate of another":     {elsewhere, access.Config{TLS: encrypted}, "advertised.listeners", true},
		"no certificate of one's own":  {certified, access.Config{TLS: encrypted}, "kafka.tls.cert_file", true},
		"a certificate nobody signed":  {certified, access.Config{TLS: unknown}, "kafka.tls.cert_file", true},
		"no TLS where it is wanted":    {secure, access.Config{SASL: account("plain", "right")}, "kafka.tls", false},
		"no account where it's wanted": {accountsOnly, access.Config{}, "kafka.sasl", false},
		// kfake hangs up where Apache Kafka says why; see the story of a Kafka that asks who comes.
		"a wrong password": {secure, access.Config{TLS: encrypted, SASL: account("scram-sha-512", "wrong")}, "kafka.sasl", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := enter(c.addr, c.config)
			mend, denied := access.Mend(err)
			if (err == nil) != (c.mend == "") || !strings.Contains(mend, c.mend) || denied != c.denied {
				t.Errorf("error %v, mend %q, denied %t", err, mend, denied)
			}
		})
	}
}

// A certificate that is replaced on the disk is the one of the next connection.
func TestACertificateIsReadAgainForEachConnection(t *testing.T) {
	ours := stage.NewAuthority(t, "ours")
	mutual := server(t, ours.Sign(time.Now().Add(time.Hour), here))
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	mutual.ClientCAs.AddCert(ours.Cert)
	addr := broker(t, kfake.TLS(mutual))

	c := access.Config{TLS: access.TLS{Enabled: true, CAFile: ours.File}}
	c.TLS = owning(c.TLS, ours.Sign(time.Now().Add(-time.Minute), here))
	letIn, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		s := sarama.NewConfig()
		s.Metadata.Retry.Max = 0
		letIn(s)
		client, err := sarama.NewClient([]string{addr}, s)
		if err == nil {
			err = client.Close()
		}
		return err
	}
	if mend, _ := access.Mend(ask()); !strings.Contains(mend, "kafka.tls.cert_file") {
		t.Fatalf("with a certificate that ended: %q", mend)
	}
	next := ours.Sign(time.Now().Add(time.Hour), here)
	for from, to := range map[string]string{next.Cert: c.TLS.CertFile, next.Key: c.TLS.KeyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(); err != nil {
		t.Errorf("with its successor: %v", err)
	}
}

func TestBadAccessIsRefusedWithItsKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "some.txt")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config access.Config
		want   []string
	}{
		{access.Config{TLS: access.TLS{CAFile: file}}, []string{"kafka.tls.enabled: false, and files are given"}},
		{access.Config{TLS: access.TLS{Enabled: true, CAFile: file}}, []string{"kafka.tls.ca_file: " + file + ": holds no certificate"}},
		{access.Config{TLS: access.TLS{Enabled: true, CAFile: file + "x"}}, []string{"kafka.tls.ca_file: open " + file + "x: no such file"}},
		{access.Config{TLS: access.TLS{Enabled: true, CertFile: file}}, []string{"kafka.tls.cert_file: one of"}},
		{access.Config{TLS: access.TLS{Enabled: true, CertFile: file, KeyFile: file}}, []string{"kafka.tls.cert_file: tls: failed to find any PEM data"}},
		{access.Config{SASL: access.SASL{User: "u"}}, []string{"kafka.sasl.mechanism: empty"}},
		{access.Config{SASL: access.SASL{Mechanism: "SCRAM"}}, []string{`kafka.sasl.mechanism: "SCRAM"`, "kafka.sasl.user: empty", "kafka.sasl.password: empty"}},
	} {
		problems := c.config.Check()
		if len(problems) != len(c.want) {
			t.Errorf("%+v: %v", c.config, problems)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(problems[i].Error(), want) {
				t.Errorf("got %q, want it to begin with %q", problems[i], want)
			}
		}
	}
}
