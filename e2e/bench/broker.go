package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// broker is a running notifyd with the topic declared.
type broker struct {
	*kid
	addr string
}

// startBroker returns when the broker owns every shard and the topic exists; with a group
// when one is named.
func (b *bench) startBroker(ctx context.Context, dsn, group, profile string) (*broker, error) {
	k, err := b.spawn(roleBroker, brief{DSN: dsn, Profile: b.profileFile(profile)})
	if err != nil {
		return nil, err
	}
	w, err := k.next(ctx)
	if err == nil {
		err = declare(ctx, w.Addr, group)
	}
	if err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return &broker{kid: k, addr: w.Addr}, nil
}

// profileFile is where a child's CPU profile goes; empty without -profile.
func (b *bench) profileFile(name string) string {
	if b.profile == "" {
		return ""
	}
	return filepath.Join(b.profile, name+".pprof")
}

func declare(ctx context.Context, addr, group string) error {
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := createTopic(ctx, c, topicName); err != nil {
		return err
	}
	if group != "" {
		err := c.Admin(ctx, func(a notifyv1connect.AdminClient) error {
			_, err := a.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{
				Subscription: &notifyv1.Subscription{Group: group, Topic: topicName}}))
			return err
		})
		if err != nil {
			return err
		}
	}
	return every(ctx, 20*time.Millisecond, func() (bool, error) { return ownsAll(ctx, c) })
}

// createTopic declares a topic, which may be declared already.
func createTopic(ctx context.Context, c *client.Client, name string) error {
	err := c.Admin(ctx, func(a notifyv1connect.AdminClient) error {
		_, err := a.CreateTopic(ctx, connect.NewRequest(&notifyv1.CreateTopicRequest{Topic: &notifyv1.Topic{Name: name}}))
		return err
	})
	var known *client.Error
	if errors.As(err, &known) && known.Reason == client.ReasonAlreadyExists {
		return nil
	}
	return err
}

// ownsAll asks whether the broker owns every shard.
func ownsAll(ctx context.Context, c *client.Client) (all bool, err error) {
	err = c.Admin(ctx, func(a notifyv1connect.AdminClient) error {
		r, err := a.ListShards(ctx, connect.NewRequest(&notifyv1.ListShardsRequest{}))
		if err != nil {
			return err
		}
		all = len(r.Msg.GetShards()) > 0
		for _, s := range r.Msg.GetShards() {
			all = all && s.GetHere()
		}
		return nil
	})
	return all, err
}
