//go:build !linux && !darwin

package fetch

import (
	"errors"
	"os"
)

func clone(*os.File, string) error { return errors.ErrUnsupported }
