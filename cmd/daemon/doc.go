// Package daemon is what notifyd and canald share, and the notify command uses in part:
// strict configuration, logs, exit codes, the ops listener, and the order of starting and
// stopping.
//
// Configuration comes from, in order of precedence: flags, environment, file, defaults. A
// key's environment variable is its path in upper case behind NOTIFY_, with _ for every
// dot, dash and level: stores.a.dsn is NOTIFY_STORES_A_DSN. A list in a variable is
// separated by commas. A variable that is unknown but looks like a known one is a problem.
//
// In the file and in variables ${env:NAME} and ${file:/path} stand for a variable and for
// the text of a file without its final line ends. Nothing else is expanded: a password may
// contain any other $.
//
// Not obvious:
//
//   - The decoder is our own, over the YAML library's syntax tree: the library's stops at
//     the first unknown key, and an operator wants all problems at once.
//   - No message quotes a value that came out of an expansion, and none quotes an address
//     of a store: they hold passwords. What is quoted is the text as it stands in the file.
//   - The ops listener answers from the first moment: /livez while migrations run, and
//     /readyz with 503 until the agent is ready and again from the first signal on.
//   - A second signal ends the process at once: the handler is gone after the first.
package daemon
