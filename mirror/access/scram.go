package access

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// scramOf is nil for a mechanism that is none of SCRAM.
func scramOf(mechanism string) func() sarama.SCRAMClient {
	var hash scram.HashGeneratorFcn
	switch mechanism {
	case "scram-sha-256":
		hash = scram.SHA256
	case "scram-sha-512":
		hash = scram.SHA512
	default:
		return nil
	}
	return func() sarama.SCRAMClient { return &conversation{hash: hash} }
}

// A conversation proves to a broker that the password is known, and the broker proves the same.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

// Begin implements sarama.SCRAMClient.
func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
