package cli

import (
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// What arguments are called in usage lines; each name has its check.
const (
	argPool         = "POOL"
	argWorker       = "POOL/N"
	argPoolOrWorker = "POOL[/N]"
	argCount        = "N"
	argLease        = "LEASE"

	argSession = "SESSION"
)

// checkArguments refuses arguments that cannot be what their names say, before anything is asked of the control plane.
func checkArguments(names, args []string) error {
	for i, arg := range args {
		var err error
		switch names[i] {
		case argPool:
			err = checkPoolName(arg)
		case argWorker:
			_, _, err = workerName(arg)
		case argPoolOrWorker:
			_, _, err = poolOrWorker(arg)
		case argCount:
			_, err = workerCount(arg)
		case argLease:
			_, err = api.ParseLeaseID(arg)
		case argSession:
			err = sessions.CheckID(arg)
		}
		if err != nil {
			_, sentence := describe(err)
			return usagef("%s", sentence)
		}
	}
	return nil
}

func checkPoolName(name string) error {
	if pool, _, err := api.ParseWorkerName(name); err == nil {
		return usagef("%q is a worker and cannot name a pool: write %s", name, pool)
	}
	if !api.ValidPoolName(name) {
		return usagef("%q cannot name a pool: write 1 to 63 of a-z, 0-9, '-' and '_', beginning with a letter or digit", name)
	}
	return nil
}

// workerName takes POOL/N apart.
func workerName(name string) (pool string, slot int, err error) {
	pool, slot, err = api.ParseWorkerName(name)
	if err != nil {
		return "", 0, usagef("%q names no worker; write POOL/N, for example python/0", name)
	}
	return pool, slot, nil
}

// poolOrWorker takes POOL or POOL/N apart; slot is nil for a whole pool.
func poolOrWorker(name string) (pool string, slot *int, err error) {
	if !strings.Contains(name, "/") {
		return name, nil, checkPoolName(name)
	}
	pool, number, err := workerName(name)
	return pool, &number, err
}

// workerCount is how many workers a pool is to have.
func workerCount(text string) (int, error) {
	count, err := strconv.Atoi(text)
	if err != nil || count < 1 {
		return 0, usagef("%q is no number of workers; give a whole number from 1 on (to have none, stop the pool)", text)
	}
	return count, nil
}
