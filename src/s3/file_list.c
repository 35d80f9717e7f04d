/* LIST in a folder: keys below a prefix in bytewise order, a page at a time.
 *
 * The prefix is cut at its last slash: what is before names the folder to start in, what is behind
 * is the beginning of the names in it. Folders sort as "name/", which is how their keys sort. Of a
 * folder's files only the first page's worth is kept while it is read, so memory does not grow with
 * the number of objects; folders that end before start_after are not entered. Symbolic links below
 * the first folder are not followed. */
#include "s3/file_store.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define PAGE_KEYS 1000
#define FILES_KEPT (PAGE_KEYS + 1) /* one more shows that the page is cut */
#define KEY_MAX 4096               /* bytes: deeper than any key of ours */

struct names {
    char **list; /* folders end in '/' */
    size_t count, cap;
    size_t files;
};

struct walk {
    struct bucket_request *r;
    const char *root;
    const atomic_bool *cancel;
    struct buf starts; /* of struct span: the keys found, as offsets into r->out */
    size_t found;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b); /* compares unsigned bytes */
}

static bool is_folder(struct span name)
{
    return name.ptr[name.len - 1] == '/';
}

static void names_deinit(struct names *n)
{
    for (size_t i = 0; i < n->count; i++)
        mem_free(n->list[i]);
    mem_free(n->list);
}

/* Sorts; keeps every folder and the first FILES_KEPT files. */
static void names_cut(struct names *n)
{
    if (n->count > 0)
        qsort(n->list, n->count, sizeof(*n->list), compare_names);
    size_t kept = 0;
    n->files = 0;
    for (size_t i = 0; i < n->count; i++) {
        bool file = !is_folder(span_str(n->list[i]));
        if (file && n->files == FILES_KEPT) {
            mem_free(n->list[i]);
            continue;
        }
        n->files += file;
        n->list[kept++] = n->list[i];
    }
    n->count = kept;
}

static void names_add(struct names *n, const char *name, bool folder)
{
    if (n->count == n->cap) {
        n->cap = n->cap == 0 ? 64 : 2 * n->cap;
        n->list = mem_grow(n->list, n->cap * sizeof(*n->list));
    }
    struct buf b = BUF_INIT;
    buf_puts(&b, name);
    buf_puts(&b, folder ? "/" : "");
    buf_putc(&b, '\0');
    n->list[n->count++] = (char *)b.ptr;
    n->files += !folder;
    if (n->files > 4 * FILES_KEPT)
        names_cut(n);
}

/* Can the object of this key, or one below this folder, be part of the answer? */
static bool is_wanted(const struct bucket_request *r, struct span key)
{
    if (!is_folder(key))
        return span_starts_with(key, r->key) && span_cmp(key, r->start_after) > 0;
    return (span_starts_with(key, r->key) || span_starts_with(r->key, key)) &&
           (span_cmp(key, r->start_after) > 0 || span_starts_with(r->start_after, key));
}

/* 'f' a file, 'd' a folder, 0 neither. */
static char kind_of(DIR *dir, const struct dirent *entry)
{
    if (entry->d_type == DT_REG)
        return 'f';
    if (entry->d_type == DT_DIR)
        return 'd';
    struct stat st;
    if (entry->d_type != DT_UNKNOWN ||
        fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    return S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : 0;
}

static void collect(struct walk *w, DIR *dir, const struct buf *folder, struct names *names)
{
    struct buf key = BUF_INIT;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL && !atomic_load(w->cancel)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            (folder->len == 0 && strcmp(name, FILE_STORE_TMP) == 0))
            continue;
        char kind = kind_of(dir, entry);
        buf_reset(&key);
        buf_put_span(&key, buf_span(folder));
        buf_puts(&key, name);
        buf_puts(&key, kind == 'd' ? "/" : "");
        if (kind != 0 && key.len <= KEY_MAX && is_wanted(w->r, buf_span(&key)))
            names_add(names, name, kind == 'd');
    }
    buf_deinit(&key);
    names_cut(names);
}

/* Reads one folder (`folder`: its key with '/', or empty) into sorted names. A folder that is not
 * there has none. */
static bool read_folder(struct walk *w, const struct buf *folder, struct names *names)
{
    struct buf path = BUF_INIT;
    buf_puts(&path, w->root);
    buf_putc(&path, '/');
    buf_put_span(&path, buf_span(folder));
    buf_putc(&path, '\0');
    DIR *dir = opendir((const char *)path.ptr);
    bool ok = dir != NULL || errno == ENOENT || errno == ENOTDIR;
    if (dir != NULL) {
        collect(w, dir, folder, names);
        (void)closedir(dir); /* only read */
    } else if (!ok) {
        file_fail_sys(w->r, "open", (const char *)path.ptr, errno);
    }
    buf_deinit(&path);
    return ok;
}

/* Walks a folder in key order until the page is full. Recursion is bounded by KEY_MAX. */
static bool walk_folder(struct walk *w, struct buf *folder)
{
    struct names names = {0};
    bool ok = read_folder(w, folder, &names);
    size_t len = folder->len;
    for (size_t i = 0; ok && i < names.count && w->found < FILES_KEPT; i++) {
        struct span name = span_str(names.list[i]);
        buf_put_span(folder, name);
        if (is_folder(name)) {
            ok = walk_folder(w, folder);
        } else {
            size_t at[2] = {w->r->out.len, folder->len};
            buf_append(&w->starts, at, sizeof(at));
            buf_put_span(&w->r->out, buf_span(folder));
            w->found++;
        }
        folder->len = len;
    }
    names_deinit(&names);
    return ok;
}

static void hand_over(struct walk *w)
{
    struct bucket_request *r = w->r;
    r->truncated = w->found > PAGE_KEYS;
    r->n_keys = r->truncated ? PAGE_KEYS : w->found;
    mem_free(r->keys);
    r->keys = MEM_ARRAY(struct span, r->n_keys);
    for (size_t i = 0; i < r->n_keys; i++) {
        size_t at[2];
        memcpy(at, w->starts.ptr + i * sizeof(at), sizeof(at));
        r->keys[i] = span_make(r->out.ptr + at[0], at[1]);
    }
    file_succeed(r, BUCKET_OK);
}

void file_list(const char *root, struct bucket_request *r, const atomic_bool *cancel)
{
    struct walk w = {.r = r, .root = root, .cancel = cancel};
    size_t cut = r->key.len;
    while (cut > 0 && r->key.ptr[cut - 1] != '/')
        cut--;
    struct buf folder = BUF_INIT;
    buf_put_span(&folder, span_sub(r->key, 0, cut));
    buf_reset(&r->out);
    bool ok = walk_folder(&w, &folder);
    if (ok && atomic_load(cancel)) {
        r->outcome = BUCKET_CANCELLED;
        r->code = 0;
    } else if (ok) {
        hand_over(&w);
    }
    buf_deinit(&w.starts);
    buf_deinit(&folder);
}
