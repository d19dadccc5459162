package media

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// inspected has the files of renditions, by their playlists.
type inspected map[string]*renditionFiles

// WriteManifests atomically writes into dir what players open: the HLS multivariant playlist, the I-frame playlist of each video
// rendition, the DASH manifest, and the chapters as WebVTT and JSON. It reads the segments to know when each starts, and where its
// first picture is.
func (t Tools) WriteManifests(ctx context.Context, dir string, out *Output) error {
	if err := t.withStepCounter().writeManifests(ctx, dir, out); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	return nil
}

func (t Tools) writeManifests(ctx context.Context, dir string, out *Output) (err error) {
	if len(out.Video)+len(out.Audio) == 0 {
		return errors.New("the output has no renditions")
	}
	files := make(inspected)
	for _, r := range slices.Concat(out.Video, out.Audio) {
		if files[r.Playlist], err = t.inspect(ctx, dir, r.Playlist); err != nil {
			return err
		}
	}
	manifest, err := files.manifest(dir, out)
	if err != nil {
		return err
	}
	var iframes []iframePlaylist
	for _, r := range slices.Concat(videoSets(out.Video)...) {
		p := files[r.Playlist].iframes(path.Dir(r.Playlist))
		if err := writeFile(filepath.Join(dir, filepath.FromSlash(p.name)), []byte(p.text)); err != nil {
			return err
		}
		p.of = r
		iframes = append(iframes, p)
	}
	if err := writeChapters(dir, out.Chapters); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, ManifestName), manifest); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, MasterName), []byte(multivariantPlaylist(out, iframes)))
}

// iframePlaylist lists the first picture of each segment, by ranges of bytes of the segments: players show them while the viewer
// winds forwards or backwards.
type iframePlaylist struct {
	of            Rendition
	name, text    string
	peak, average int64 // bits per second
}

// iframesName is the name of an I-frame playlist in the directory of its rendition.
const iframesName = "iframes.m3u8"

// iframes returns the I-frame playlist of a rendition in a directory. A range begins with the box that describes the picture.
func (s *renditionFiles) iframes(dir string) iframePlaylist {
	p := iframePlaylist{name: path.Join(dir, iframesName)}
	var b strings.Builder
	fmt.Fprintf(&b, "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:%d\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n"+
		"#EXT-X-I-FRAMES-ONLY\n#EXT-X-MAP:URI=\"%s\"\n", s.target, s.init)
	total := int64(0)
	for _, g := range s.segments {
		size, seconds := g.keyEnd-g.moofStart, s.seconds(g.length)
		fmt.Fprintf(&b, "#EXTINF:%.6f,\n#EXT-X-BYTERANGE:%d@%d\n%s\n", seconds, size, g.moofStart, g.name)
		total += size
		p.peak = max(p.peak, int64(float64(8*size)/seconds)+1)
	}
	b.WriteString("#EXT-X-ENDLIST\n")
	p.text, p.average = b.String(), int64(float64(8*total)/s.duration())+1
	return p
}
