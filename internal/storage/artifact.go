package storage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/contenttype"
)

// manifestName is the name of an artifact's manifest, which no file in it may have.
const manifestName = ".cuelight-manifest.json"

// manifestVersion is the version of the format.
const manifestVersion = 1

// Manifest lists the files of an artifact, by name.
type Manifest struct {
	Version int    `json:"version"`
	Files   []File `json:"files"`
}

// File is a file of an artifact.
type File struct {
	Name   string `json:"name"` // slash-separated, relative to the artifact
	Size   int64  `json:"size"` // in bytes
	SHA256 string `json:"sha256"`
	// Blocks are the SHA-256 of every BlockSize bytes of a file that was uploaded in parts. Artifacts
	// of older versions have none.
	Blocks []string `json:"blocks,omitempty"`
}

// isSame reports whether both have the same content and name.
func (f File) isSame(other File) bool {
	return f.Name == other.Name && f.Size == other.Size && f.SHA256 == other.SHA256
}

// Bytes is the total size of the files.
func (m Manifest) Bytes() int64 {
	total := int64(0)
	for _, f := range m.Files {
		total += f.Size
	}
	return total
}

// Progress is called with the bytes that an operation has transferred or found complete, and
// with their total. Calls do not overlap. It may be nil.
type Progress func(done, total int64)

// counter calls a Progress.
type counter struct {
	report Progress
	total  int64
	mu     sync.Mutex // of done and of calls of report
	done   int64
}

func (c *counter) add(n int64) {
	if c.report == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += n
	c.report(c.done, c.total)
}

// ReadManifest returns the manifest of an artifact, or fs.ErrNotExist if the artifact does not
// exist.
func (b *Bucket) ReadManifest(ctx context.Context, name string) (Manifest, error) {
	if err := checkName(name); err != nil {
		return Manifest{}, err
	}
	m, err := b.readManifest(ctx, name)
	return m, b.wrap(ctx, err, "read manifest of", name)
}

// readManifest returns fs.ErrNotExist if the artifact does not exist.
func (b *Bucket) readManifest(ctx context.Context, name string) (m Manifest, err error) {
	content, _, err := b.readObject(ctx, b.key(name, manifestName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return m, fmt.Errorf("%w: its manifest is not JSON: %w", ErrCorrupt, err)
	}
	if m.Version != manifestVersion {
		return m, fmt.Errorf("%w: its manifest has version %d, this program reads %d", ErrCorrupt, m.Version, manifestVersion)
	}
	for _, f := range m.Files {
		if checkName(f.Name) != nil || !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Size < 0 {
			return m, fmt.Errorf("%w: its manifest has the file %q of %d bytes", ErrCorrupt, f.Name, f.Size)
		}
	}
	return m, nil
}

// writeManifest makes the artifact exist. A manifest that is there and says the same is this
// one, written by a request whose answer was lost.
func (b *Bucket) writeManifest(ctx context.Context, name string, m Manifest) error {
	m.Version = manifestVersion
	slices.SortFunc(m.Files, func(x, y File) int { return cmp.Compare(x.Name, y.Name) })
	content, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	put := minio.PutObjectOptions{ContentType: contenttype.Of(manifestName), CacheControl: immutable}
	put.SetMatchETagExcept("*")
	_, err = b.putBytes(ctx, b.key(name, manifestName), content, put)
	if isLost(err) {
		found, err := b.readManifest(ctx, name)
		if err != nil {
			return err
		}
		return compare(m, found)
	}
	return err
}

// TouchArtifact sets the time of an artifact to now, by the service's clock: it writes the same manifest
// again. An artifact that does not exist stays so.
func (b *Bucket) TouchArtifact(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	key := b.key(name, manifestName)
	content, etag, err := b.readObject(ctx, key)
	if err == nil {
		put := minio.PutObjectOptions{ContentType: contenttype.Of(manifestName), CacheControl: immutable}
		put.SetMatchETag(etag)
		_, err = b.putBytes(ctx, key, content, put)
	}
	if isMissing(err) || isLost(err) {
		return nil // it was deleted
	}
	return b.wrap(ctx, err, "touch artifact", name)
}

// compare returns fs.ErrExist if the manifests differ.
func compare(m, found Manifest) error {
	if slices.EqualFunc(m.Files, found.Files, File.isSame) {
		return nil
	}
	return fmt.Errorf("it has other files: %w", fs.ErrExist)
}

// putBytes writes an object. The service checks the hash of what it receives.
func (b *Bucket) putBytes(
	ctx context.Context, key string, content []byte, put minio.PutObjectOptions,
) (etag string, err error) {
	sum := sha256.Sum256(content)
	put.DisableContentSha256 = true // it is the next argument
	info, err := b.core.PutObject(ctx, b.address.Bucket, key, bytes.NewReader(content), int64(len(content)), "",
		hex.EncodeToString(sum[:]), put)
	return info.ETag, err
}

// objects lists the objects below a name, by key.
func (b *Bucket) objects(ctx context.Context, name string) (map[string]minio.ObjectInfo, error) {
	found := make(map[string]minio.ObjectInfo)
	list := minio.ListObjectsOptions{Prefix: b.directory(name), Recursive: true}
	for o := range b.core.ListObjectsIter(ctx, b.address.Bucket, list) {
		if o.Err != nil {
			return nil, o.Err
		}
		found[o.Key] = o
	}
	return found, ctx.Err()
}

// upload is an unfinished multipart upload.
type upload = minio.ObjectMultipartInfo

// uploads lists the unfinished uploads below a name.
func (b *Bucket) uploads(ctx context.Context, name string) (found []upload, err error) {
	keyMarker, idMarker := "", ""
	for {
		page, err := b.core.ListMultipartUploads(ctx, b.address.Bucket, b.directory(name), keyMarker, idMarker, "", 1000)
		if err != nil {
			return nil, err
		}
		found = append(found, page.Uploads...)
		if !page.IsTruncated || page.NextKeyMarker == "" {
			return found, nil
		}
		keyMarker, idMarker = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

// parts lists the parts that an upload has, by number.
func (b *Bucket) parts(ctx context.Context, u upload) (map[int]minio.ObjectPart, error) {
	found := make(map[int]minio.ObjectPart)
	for marker := 0; ; {
		page, err := b.core.ListObjectParts(ctx, b.address.Bucket, u.Key, u.UploadID, marker, 1000)
		if err != nil {
			return nil, err
		}
		for _, p := range page.ObjectParts {
			p.ETag = strings.Trim(p.ETag, `"`)
			found[p.PartNumber] = p
		}
		if !page.IsTruncated || page.NextPartNumberMarker <= marker {
			return found, nil
		}
		marker = page.NextPartNumberMarker
	}
}

// abortUploads removes the parts of all unfinished uploads below a name.
func (b *Bucket) abortUploads(ctx context.Context, name string) error {
	unfinished, err := b.uploads(ctx, name)
	if err != nil {
		return err
	}
	for _, u := range unfinished {
		err := b.core.AbortMultipartUpload(ctx, b.address.Bucket, u.Key, u.UploadID)
		if err != nil && !hasCode(err, "NoSuchUpload") {
			return err
		}
	}
	return nil
}

func hasCode(err error, code string) bool {
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && answer.Code == code
}

// isLost reports whether a conditional write was refused.
func isLost(err error) bool {
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && isConflict(answer)
}

// isManifest reports whether players read a file first, so that it must come last.
func isManifest(name string) bool {
	ext := strings.ToLower(path.Ext(name))
	return ext == ".m3u8" || ext == ".mpd"
}

// selectFiles returns the files that have one of the names or are below it.
func selectFiles(files []File, only []string) ([]File, error) {
	if len(only) == 0 {
		return files, nil
	}
	var selected []File
	isFound := make(map[string]bool)
	for _, f := range files {
		for _, name := range only {
			if f.Name == name || strings.HasPrefix(f.Name, name+"/") {
				isFound[name] = true
				selected = append(selected, f)
				break
			}
		}
	}
	for _, name := range only {
		if !isFound[name] {
			return nil, fmt.Errorf("the artifact has no %s: %w", name, fs.ErrNotExist)
		}
	}
	return selected, nil
}
