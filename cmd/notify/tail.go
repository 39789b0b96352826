package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) mirrorTail() *cobra.Command {
	return &cobra.Command{Use: "tail TOPIC", Args: cobra.ExactArgs(1), RunE: a.action(func(*cobra.Command, []string) error { return errors.New("x") })}
}
