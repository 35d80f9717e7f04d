#include "sim/refusals.h"

#include "base/hash.h"
#include "base/mem.h"
#include "sim/world_internal.h"

#include <stdio.h>

char *refusal_damage(struct world *w, const char *folder, const char *text)
{
    struct disk_list list = {0};
    struct error error = {0};
    char *found = NULL;
    if (disk_list(w->disk, folder, &list, &error) != ERR_OK)
        world_fail(w, "%s", error.text);
    for (size_t i = 0; i < list.count && found == NULL; i++) {
        char path[200];
        struct buf bytes = BUF_INIT;
        snprintf(path, sizeof(path), "%s/%s", folder, list.entries[i].name);
        bool segment = strncmp(list.entries[i].name, "seg-", 4) == 0;
        if (segment && sim_disk_get(w->disk, path, &bytes)) {
            uint8_t *at = memmem(bytes.ptr, bytes.len, text, strlen(text));
            uint8_t flipped = at == NULL ? 0 : *at ^ 1;
            if (at != NULL) {
                sim_disk_damage(w->disk, path, (uint64_t)(at - bytes.ptr), span_make(&flipped, 1));
                found = mem_copy(path, strlen(path) + 1);
            }
        }
        buf_deinit(&bytes);
    }
    disk_list_deinit(&list);
    if (found == NULL)
        world_fail(w, "%s is nowhere in %s", text, folder);
    world_trace(w, "damage in %s", found == NULL ? "nothing" : found);
    return found;
}

/* Of every name and byte below a folder. */
static uint64_t digest_of(struct world *w, const char *folder, uint64_t digest)
{
    struct disk_list list = {0};
    if (disk_list(w->disk, folder, &list, NULL) != ERR_OK)
        return digest;
    for (size_t i = 0; i < list.count; i++) {
        char path[200];
        struct buf bytes = BUF_INIT;
        snprintf(path, sizeof(path), "%s/%s", folder, list.entries[i].name);
        digest = hash64(span_str(path), digest);
        if (list.entries[i].is_dir)
            digest = digest_of(w, path, digest);
        else if (sim_disk_get(w->disk, path, &bytes))
            digest = hash64(buf_span(&bytes), digest);
        buf_deinit(&bytes);
    }
    disk_list_deinit(&list);
    return digest;
}

void refusal_expect(struct world *w, const char *folder, const char *names)
{
    struct error error = {0};
    uint64_t digest = digest_of(w, folder, 0);
    if (!w->result->ok)
        return;
    if (world_try_open_node(w, &error) == ERR_OK)
        world_fail(w, "the boot does not mind the damage");
    else if (strstr(error.text, names) == NULL)
        world_fail(w, "the refusal does not name %s: %s", names, error.text);
    else if (digest_of(w, folder, 0) != digest)
        world_fail(w, "a refused boot changed %s", folder);
    world_trace(w, "refused: %s", error.text);
}
