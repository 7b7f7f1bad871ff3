package cli

import (
	"os/user"
)

// operator is who asks, as it will stand in workers' histories.
func operator() string {
	if current, err := user.Current(); err == nil && current.Username != "" {
		return current.Username
	}
	return "ctl" // a user without a name, as in many containers
}

// reasonWithOperator puts a reason and who gave it into one phrase, for requests that have one field for both.
func reasonWithOperator(reason string) string {
	if reason == "" {
		return "asked for by " + operator()
	}
	return reason + " (by " + operator() + ")"
}
