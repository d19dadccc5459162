package ui

import (
	"embed"
	"io/fs"

	"github.com/cuelight/cuelight/web/internal/assets"
)

//go:embed assets templates
var files embed.FS

func newAssets(base string) (assets.Files, error) {
	dir, err := fs.Sub(files, "assets")
	if err != nil {
		return assets.Files{}, err
	}
	return assets.New(dir, base+"/assets/")
}
