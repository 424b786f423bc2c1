package attacher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// call changes a volume's attachment at the cloud. A volume that the cloud does not know any more is detached.
func (a *Attacher) call(ctx context.Context, method, volume string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the call: %w", err)
	}
	path := strings.Replace(cloudapi.PathVolumeAttachment, "{id}", url.PathEscape(volume), 1)
	req, err := http.NewRequestWithContext(ctx, method, a.cfg.Cloud+path, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("make the call: %w", err)
	}
	req.Header.Set("User-Agent", "csi-attacher")
	if a.cfg.Credentials != "" {
		req.Header.Set("Authorization", "Bearer "+a.cfg.Credentials)
	}
	resp, err := a.cfg.HTTPClient.Do(req)
	if err != nil {
		return fmt.Errorf("call the cloud: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the cloud's answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var refused cloudapi.ErrorBody
	if err := json.Unmarshal(answer, &refused); err != nil {
		return fmt.Errorf("the cloud answered %s", resp.Status)
	}
	if method == http.MethodDelete && refused.Code == cloudapi.CodeNotFound {
		return nil
	}
	return fmt.Errorf("the cloud answered %s: %s", refused.Code, refused.Message)
}
