package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"

	"github.com/IBM/sarama"
)

// Mend is what mends the error of a client that was not let in, in terms of the `kafka` section;
// empty for any other error. denied: it is the account or a certificate. Otherwise it is a
// guess: a broker that wants TLS or an account, and gets none, only hangs up.
func Mend(err error) (mend string, denied bool) {
	switch {
	case err == nil:
		return "", false
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return "correct kafka.sasl.user and kafka.sasl.password, or make that account in Kafka", true
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return "kafka.sasl.mechanism: name one of the listener's sasl.enabled.mechanisms", true
	case errors.Is(err, sarama.ErrIllegalSASLState):
		return "that listener knows no accounts: take kafka.sasl out, or name another port in kafka.brokers", true
	case is[x509.UnknownAuthorityError](err):
		return "kafka.tls.ca_file: name the authority that signed the broker's certificate", true
	case is[x509.HostnameError](err):
		return "name the broker in kafka.brokers, and in its advertised.listeners, as its certificate does", true
	case is[x509.CertificateInvalidError](err):
		return "renew the broker's certificate, or set this machine's clock", true
	case is[tls.RecordHeaderError](err):
		return "that port speaks no TLS: set kafka.tls.enabled to false, or name another port in kafka.brokers", true
	case refusedByPeer(err):
		return "kafka.tls.cert_file and kafka.tls.key_file: name a certificate that the broker takes", true
	case errors.Is(err, io.EOF):
		return "it hangs up: it may want TLS (kafka.tls) or an account (kafka.sasl), or be about to stop", false
	}
	return "", false
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// refusedByPeer tells whether the other end of a TLS connection sent an alert.
func refusedByPeer(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}
