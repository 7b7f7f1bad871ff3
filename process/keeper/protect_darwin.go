package keeper

import "errors"

func protect() error { return errors.ErrUnsupported }
